module parked

go 1.18
