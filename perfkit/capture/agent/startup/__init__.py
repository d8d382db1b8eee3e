"""What Python imports at the start of a program that perfkit captures: the folder stands on its PYTHONPATH."""
