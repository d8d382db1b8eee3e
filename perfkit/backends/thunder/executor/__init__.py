"""The backend thunder-llmc's executor. Its modules need Thunder: nothing imports them before it runs."""
