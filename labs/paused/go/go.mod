module paused

go 1.19
