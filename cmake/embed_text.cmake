# Writes the text of IN to OUT as a raw string literal. Run with cmake -P.
file(READ ${IN} text)
file(WRITE ${OUT} "R\"text(${text})text\"\n")
