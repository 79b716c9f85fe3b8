"""Tests of the web page, module by module."""
