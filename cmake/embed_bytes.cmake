# Writes the bytes of IN to OUT as "0x12,0x34,...", to be included in an array. Run with cmake -P.
file(READ ${IN} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUT} "${bytes}\n")
