module lane

go 1.19
