module multiplexed

go 1.24
