import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readdir } from 'node:fs/promises'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const EXAMPLES = fileURLToPath(new URL('../../docs/examples/', import.meta.url))
/** A helper module in the same directory, which is not an example. */
const HELP = 'local-rexd.ts'

/** The expected output of each example. Patterns match the parts that depend on the machine. */
const SAYS: Readonly<Record<string, RegExp>> = {
  'edit-files.ts': /^water the plants\nfeed both cats\n\nconflict: changed\n1 file found\nstill there: false\n$/,
  'open-terminal.ts': /^24 80, 43 132, yes\nended with 0\n$/,
  'over-web-socket.ts': /^a lost connection is waited for 60000 ms\n1\n2\n3\nnotes: water the plants\n$/,
  'route-targets.ts':
    /^local \(default\): hello\nserver-a \(path\): hello\nserver-a \(carried\): the same again\nlocal \(selected\): hello\n$/,
  'run-command.ts': /^rexd \S+, roots 1, may exec .*\nuname ended with 0: \w+\nls ended with [12]\nrefused: file_not_found \(-32009\)\n$/,
  'stream-output.ts': /^stdout: 9 10 100\nsort ended with 0\ngiven up: that takes too long\n$/,
}

test('every example runs and prints its expected output', async () => {
  const files = (await readdir(EXAMPLES)).filter((file) => file.endsWith('.ts') && file !== HELP)
  assert.deepEqual(files.toSorted(), Object.keys(SAYS))
  const outputs = await Promise.all(files.map(async (file) => promisify(execFile)(process.execPath, [`${EXAMPLES}${file}`])))
  for (const [i, file] of files.entries()) assert.match(outputs[i]!.stdout, SAYS[file]!, file)
})
