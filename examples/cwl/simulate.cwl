cwlVersion: v1.2
class: CommandLineTool
baseCommand: seq
inputs:
  sample: {type: int, inputBinding: {position: 1}}
arguments:
  - {valueFrom: "1200000", position: 2}
outputs:
  series: {type: stdout}
stdout: $(inputs.sample).txt
