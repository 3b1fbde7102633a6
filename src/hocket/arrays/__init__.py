"""Users' arrays, element types and operators."""
