"""The tutorials are true: their Python runs and prints what they say. A file of their own, since a worker takes one."""

import pytest
from pages import PAGES, check_python, examples, name


@pytest.mark.parametrize("page", [page for page in PAGES if examples(page) and "tutorials" in page.parts], ids=name)
def test_python_blocks(page, tmp_path):
    check_python(page, tmp_path)
