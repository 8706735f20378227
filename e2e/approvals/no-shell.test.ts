import assert from 'node:assert/strict'
import { readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { startMcp } from '../../test/support/mcp-server.ts'

/** Texts that a shell, or another program that interprets text, would act on. */
const ORDERS: Readonly<Record<string, readonly string[]>> = {
  'B1: substitutions in double quotes': ['"$(touch made)"', '"`touch made`"', '$(touch made)'],
  'B2: substitutions that a line continuation splits': ['"$\\\n(touch made)"', '$\\\n(touch made)'],
  'B3: heredocs without quotes': ['<<EOF\n$(touch made)\nEOF\n', 'cat <<EOF\n$HOME\nEOF'],
  'B4: later parts of pipes, lists and background jobs': [
    'x | touch made',
    'x; touch made',
    'x && touch made',
    'x & touch made',
    'x\ntouch made',
  ],
  'B5: what cmd.exe acts on': ['x & touch made', '%PATH%', '^& touch made', '!x!'],
  'B6: globs, variables and home directories': ['*', '~', '$HOME', '${HOME}', '{a,b}', '?', '[a-z]*'],
}

for (const [what, orders] of Object.entries(ORDERS))
  test(`${what} reach the program unchanged, and no part of them is run or expanded`, async (t) => {
    const agent = await startMcp(t)
    await writeFile(join(agent.root, 'a'), '')
    const { stdout } = await agent.run('exec_capture', { command: 'printf', args: ['<%s>', ...orders] })
    assert.equal(stdout, orders.map((order) => `<${order}>`).join(''))
    assert.deepEqual(await readdir(agent.root), ['a'])
  })
