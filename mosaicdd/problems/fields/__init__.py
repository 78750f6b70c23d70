"""Values over a domain: expressions, arrays, functions and files, and random ones."""
