import assert from 'node:assert/strict'
import { test } from 'node:test'

import { givenOptions, NONE_GIVEN, pasteable } from '../../src/base/hint.ts'

const given = (program: string, options: Readonly<Record<string, string>>) =>
  givenOptions(program, { has: (name) => name in options, value: (name) => options[name] ?? null })

test("a command in a hint gets the options of the user's command line, each once and at its place", () => {
  const cli = given('x0x', { name: 'lab', api: 'http://127.0.0.1:1' })
  const daemon = given('x0xd', { 'data-dir': '/a b', config: 'c.toml' })
  for (const [hint, options, expected] of [
    ['Try: x0x runs', cli, 'Try: x0x --name lab --api http://127.0.0.1:1 runs'],
    ['  Try: x0xd --replace &', cli, '  Try: x0xd --name lab --replace &'],
    ['Try: x0xd --name lab --init &', cli, 'Try: x0xd --name lab --init &'],
    [
      'Try: x0x a && x0x b --name lab c',
      cli,
      'Try: x0x --name lab --api http://127.0.0.1:1 a && x0x --api http://127.0.0.1:1 b --name lab c',
    ],
    ['Try: x0x mcp --whoami x', cli, 'Try: x0x mcp --whoami x'],
    ['Try: x0x ui --port 1', cli, 'Try: x0x ui --name lab --port 1'],
    ['waits. Next: x0x attach 12', cli, 'waits. Next: x0x --name lab --api http://127.0.0.1:1 attach 12'],
    ['Next: x0x invite NAME', daemon, "Next: x0x --data-dir '/a b' invite NAME"],
    ['Try: x0xd --replace', daemon, "Try: x0xd --data-dir '/a b' --config c.toml --replace"],
    ['      -> x0x acl check F', daemon, "      -> x0x --data-dir '/a b' acl check F"],
    [
      'Use a contact name (x0x contacts list), or an agent ID (x0x peers)',
      daemon,
      "Use a contact name (x0x --data-dir '/a b' contacts list), or an agent ID (x0x --data-dir '/a b' peers)",
    ],
    [
      'Add detach = true (see x0x acl explain --detach)',
      cli,
      'Add detach = true (see x0x --name lab --api http://127.0.0.1:1 acl explain --detach)',
    ],
    ['To pair with another machine: x0x invite NAME', daemon, "To pair with another machine: x0x --data-dir '/a b' invite NAME"],
    // A command on another machine refers to another daemon.
    ['(LINK: x0x card on its machine)', cli, '(LINK: x0x card on its machine)'],
    ['Try, on bob: x0x acl suggest', cli, 'Try, on bob: x0x acl suggest'],
    ['Try: on bob, check that x0xd is running', cli, 'Try: on bob, check that x0xd is running'],
    ['there: x0x card', cli, 'there: x0x card'],
    ['Try: sudo -u x0x x0x --data-dir /var/lib/x0x', cli, 'Try: sudo -u x0x x0x --data-dir /var/lib/x0x'],
    ['Try: x0x runs', NONE_GIVEN, 'Try: x0x runs'],
  ] as const)
    assert.equal(pasteable(hint, options), expected)
})
