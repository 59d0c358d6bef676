# Computes for good, in two functions that take turns.

def even(number)
  round = 0
  while round < 20_000
    number = ((number * 31) + round) & 0xffff
    round += 1
  end
  number
end

def odd(number)
  round = 0
  while round < 20_000
    number = ((number * 17) + [round, number].max) & 0xffff
    round += 1
  end
  number
end

def request
  number = 1
  number = odd(even(number)) while true
end

request
