cwlVersion: v1.2
class: CommandLineTool
baseCommand: [sort, -n]
inputs:
  rows: {type: "File[]", inputBinding: {position: 1}}
outputs:
  merged: {type: stdout}
stdout: table.txt
