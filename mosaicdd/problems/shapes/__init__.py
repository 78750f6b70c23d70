"""Domains that are not rectangles: levels, polygons, masks and their outlines."""
