import assert from 'node:assert/strict'
import { chmod, copyFile, mkdir, rename, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { errorText } from '../../src/base/errors.ts'
import { runSandboxed, startSandboxed, type Household, type SandboxedOptions } from '../../test/support/sandboxed.ts'
import { row, type Row } from './row.ts'

// A sandboxed run starts only the program that was permitted, in the directory that was permitted.

const program = async (path: string, text: string): Promise<string> => {
  await writeFile(path, text)
  await chmod(path, 0o755)
  return path
}

const failureOf = async (
  t: Parameters<typeof startSandboxed>[0],
  house: Household,
  argv: readonly string[],
  options: SandboxedOptions,
): Promise<string> => {
  const started = await startSandboxed(t, house, argv, options).catch((error: unknown) => ({ failed: errorText(error) }))
  assert.ok('failed' in started, 'it runs')
  return started.failed
}

export const IDENTITY_ROWS: readonly Row[] = [
  row('a program in the directory that is replaced after the permit does not run', async (t, house) => {
    const tool = await program(join(house.project, 'tool'), '#!/bin/sh\necho permitted\n')
    assert.equal((await runSandboxed(t, house, [tool])).stdout, 'permitted\n')
    const meanwhile = async (): Promise<void> => {
      await program(`${tool}.new`, '#!/bin/sh\necho another\n')
      await rename(`${tool}.new`, tool)
    }
    assert.match(await failureOf(t, house, [tool], { meanwhile }), /was replaced after it was permitted/)
  }),

  row('a link that leads elsewhere in the sandbox than on the host does not run', async (t, house, form) => {
    // On the host it leads to a program in the home directory, and in the sandbox to no file.
    const tool = await program(join(house.home, 'tool'), '#!/bin/sh\necho host\n')
    await symlink(tool, join(house.project, 'link'))
    assert.match(
      await failureOf(t, house, [join(house.project, 'link')], {}),
      form === 'host' ? /the sandbox could not be checked: ENOENT/ : /link" is not a program in the image/,
    )
  }),

  row('a directory that is replaced by a link after the permit is not shown', async (t, house) => {
    await writeFile(join(house.home, '.ssh', 'id'), 'a key')
    const meanwhile = async (): Promise<void> => {
      await rename(house.project, join(house.home, 'moved'))
      await symlink(join(house.home, '.ssh'), house.project)
    }
    assert.match(
      await failureOf(t, house, ['cat', 'id'], { meanwhile }),
      /is another directory in the sandbox than the one that was permitted/,
    )
  }),

  row(
    'a program from another directory is shown without the other files of that directory',
    async (t, house) => {
      const bin = join(house.home, 'bin')
      await mkdir(bin)
      await writeFile(join(bin, 'neighbour'), 'a letter')
      const tool = await program(
        join(bin, 'tool'),
        '#!/bin/sh\nls "$(dirname "$0")"\ncat "$(dirname "$0")/neighbour" 2>/dev/null\necho x 2>/dev/null > "$0"\necho end\n',
      )
      assert.equal((await runSandboxed(t, house, [tool])).stdout, 'tool\nend\n')
    },
    { only: 'host' },
  ),

  row(
    'a program of the host is not a program of the image',
    async (t, house) => {
      const tool = await program(join(house.home, 'tool'), '#!/bin/sh\necho ran\n')
      assert.match(await failureOf(t, house, [tool], {}), /tool" is not a program in the image/)
    },
    { only: 'image' },
  ),

  row(
    'a script whose interpreter is not visible fails with a message, and runs if the configuration shows the interpreter',
    async (t, house) => {
      const tools = join(house.home, 'tools')
      await mkdir(tools)
      await copyFile('/bin/sh', join(tools, 'shell'))
      await chmod(join(tools, 'shell'), 0o755)
      const script = await program(join(house.project, 'script'), `#!${tools}/shell\necho ran\n`)
      assert.match(
        await failureOf(t, house, [script], {}),
        /names .*tools\/shell, which the sandbox does not show; tools\.exec\.sandbox\.readable/,
      )
      assert.equal((await runSandboxed(t, house, [script], { settings: { readable: [tools] } })).stdout, 'ran\n')
    },
  ),

  row('a readable directory that another run has replaced by a link is not shown', async (t, house) => {
    const tools = join(house.home, 'other', 'tools')
    await mkdir(tools, { recursive: true })
    await writeFile(join(tools, 'list'), 'a list')
    await writeFile(join(house.home, '.ssh', 'id'), 'a key')
    const settings = { readable: [tools] }
    assert.equal((await runSandboxed(t, house, ['cat', join(tools, 'list')], { settings })).stdout, 'a list')
    const meanwhile = async (): Promise<void> => {
      await rename(tools, join(house.home, 'other', 'was'))
      await symlink(join(house.home, '.ssh'), tools)
    }
    assert.match(
      await failureOf(t, house, ['cat', join(tools, 'id')], { settings, meanwhile }),
      /is another one in the sandbox than tools\.exec\.sandbox\.readable names/,
    )
  }),

  row('two runs share only their directory, and see no files or processes of each other', async (t, house) => {
    const first = await startSandboxed(t, house, ['sh', '-c', 'echo x > /tmp/mine; touch there; sleep 1000'])
    assert.ok(!('failed' in first))
    const second = await runSandboxed(t, house, [
      'sh',
      '-c',
      'while ! [ -e there ]; do sleep 0.01; done; ls /tmp/mine 2>/dev/null; grep -l sleep /proc/[0-9]*/comm; ls',
    ])
    assert.equal(second.stdout, 'there\n')
  }),
]
