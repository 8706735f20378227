import assert from 'node:assert/strict'
import { test } from 'node:test'

import { AppError } from '../../src/base/errors.ts'
import type { CommandSpec } from '../../src/cli/command.ts'
import { BUNDLE, DESK, MCP, UI, X0XD } from '../../src/cli/programs.ts'
import { REXD } from '../../src/cli/rexd.ts'
import { REXEC, rexecLine } from '../../src/cli/rexec.ts'
import { runProgram } from '../../src/cli/program-line.ts'

const read = { read: rexecLine }

/** Program, arguments, hint, and the hint as the user reads it. */
const ROWS: readonly (readonly [CommandSpec, string[], string, string, { read?: typeof rexecLine }?])[] = [
  [UI, ['--name', 'lab', '--config', 'c'], 'Try: x0x ui --port 1', 'Try: x0x ui --name lab --config c --port 1'],
  [UI, ['--name', 'lab', '--config', 'c'], 'Try: x0xd --replace', 'Try: x0xd --name lab --replace'],
  [DESK, ['--data-dir', '/a b'], 'Try: x0x approvals watch', "Try: x0x --data-dir '/a b' approvals watch"],
  [BUNDLE, ['--data-dir', '/a', '--exec-acl', 'f'], 'Try: x0x bundle --json', 'Try: x0x bundle --data-dir /a --exec-acl f --json'],
  [BUNDLE, ['--data-dir', '/a', '--exec-acl', 'f'], 'Try: x0x acl check F', 'Try: x0x --data-dir /a acl check F'],
  [MCP, ['--config', 'c', '--whoami', 'x'], 'Try: x0x mcp --check', 'Try: x0x mcp --config c --check'],
  [MCP, ['--config', 'c', '--whoami', 'x'], 'Try: x0x contacts list', 'Try: x0x contacts list'],
  [REXD, ['--stdio', '--config', 'c'], 'Try: rexd --check', 'Try: rexd --config c --check'],
  [REXEC, ['--start-host', '--config', 'c'], 'Try: rexec --start-host', 'Try: rexec --config c --start-host', read],
  [REXEC, ['--start-host', '--config', 'c'], 'Try: x0x console --plain', 'Try: x0x console --config c --plain', read],
  [X0XD, ['--name', 'lab'], 'Try: x0x invite NAME', 'Try: x0x --name lab invite NAME'],
]

for (const [program, argv, next, expected, options] of ROWS)
  test(`an error of ${program.name} repeats the options that the user gave: ${next}`, async (t) => {
    const written = t.mock.method(process.stderr, 'write', () => true)
    const fail = async (): Promise<number> => {
      throw new AppError('conflict', 'no', { data: { next } })
    }
    const status = await runProgram(program, argv, fail, options)
    const texts = written.mock.calls.map(({ arguments: [text] }) => String(text))
    written.mock.restore()
    assert.deepEqual([status, texts], [1, [`${program.name}: no\n${program.name}:   ${expected}\n`]])
  })
