# Writes {"model", R"(config.pbtxt)"}, rows for every template under ROOT. Run with cmake -P.
set(rows "")
foreach(model preprocessing tensorrt_llm postprocessing ensemble tensorrt_llm_bls)
  file(READ ${ROOT}/${model}/config.pbtxt text)
  string(APPEND rows "{\"${model}\", R\"pbtxt(${text})pbtxt\"},\n")
endforeach()
file(WRITE ${OUT} "${rows}")
