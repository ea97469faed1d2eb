"""Pure functions from tables to tables, and renderers; nothing here measures, and nothing imports
torch.
"""
