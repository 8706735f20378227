// `x0x console WORD ...` in the words of rexec.
'use strict'
const FLAGS = {
  run: [],
  check: ['--check-host'],
  attach: ['--attach'],
  install: ['--install'],
  mcp: ['--mcp-stdio'],
  list: ['--list'],
  print: ['--print'],
}
const TEXTS = ['--help', '-h', '--version']

/** `words`: behind `console`. Without one of its own it is the host. */
exports.rexecWords = ([word = '', ...rest]) => {
  if (Object.hasOwn(FLAGS, word)) return [...FLAGS[word], ...rest]
  const words = word === '' ? rest : [word, ...rest]
  return TEXTS.includes(word) ? words : ['--start-host', ...words]
}
