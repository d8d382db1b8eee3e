"""What the backend thunder-llmc adds to Thunder; importing its modules needs Thunder, so nothing does before it runs."""
