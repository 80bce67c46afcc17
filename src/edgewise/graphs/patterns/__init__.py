"""Graphs by rule: each pattern is a predicate on positions, the same as intervals, and the function that checks.

Every pattern costs nothing until it is lowered; its ranges then take O(I) and its edges O(E). `draw(graph)` shows a
small graph as text: a row for each receiver, a column for each sender.
"""
