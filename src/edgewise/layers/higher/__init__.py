"""Networks beyond message passing: what they tell apart, 1-WL does not."""
