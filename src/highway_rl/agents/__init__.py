"""Agents: one for tables, and RUDDER on top of it."""
