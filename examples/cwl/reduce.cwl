cwlVersion: v1.2
class: CommandLineTool
baseCommand: cksum
inputs:
  series: File
outputs:
  row: {type: stdout}
stdin: $(inputs.series.path)
stdout: $(inputs.series.nameroot).row
