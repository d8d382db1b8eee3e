"""What the backend thunder-llmc adds to Thunder. Its modules need Thunder: nothing imports them before it runs."""
