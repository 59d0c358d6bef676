module names

go 1.19
