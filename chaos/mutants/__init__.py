# SPDX-License-Identifier: Apache-2.0
"""Planted bugs: each defence of the system is taken out, one at a time, to see that something notices.

A test that cannot fail proves nothing. So each bug here is an edit of the production tree (`edit`), made in a private
copy of it, and names the one explorer model, test or scenario that has to break by it (`catch`). `catalog` is the list;
``python -m chaos.mutants`` goes through it. What is caught by one check alone is said there: where two defences stand
one behind the other, the check is chosen so that the other cannot help.
"""
