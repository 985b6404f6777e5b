"""The tutorials are true: their Python runs and prints what they say. A file of their own, since a worker takes one."""

import pytest
from pages import check_python, with_examples


@pytest.mark.parametrize("page", with_examples(tutorials=True))
def test_python_blocks(page, tmp_path):
    check_python(page, tmp_path)
