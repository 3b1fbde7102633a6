from .lower import Rows as Rows
