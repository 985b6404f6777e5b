"""The mathematics: returns → gate → aggregate. Start with `backup.py`."""
