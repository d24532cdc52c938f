"""Tracers: function, function_graph and function_profile, laid into programs and their libraries."""
