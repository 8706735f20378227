import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { isRoot } from '../../test/support/containment.ts'
import { killMarked, marked } from '../../test/support/marked.ts'
import { mcpPlace, startMcp } from '../../test/support/mcp-server.ts'
import { until } from '../../test/support/processes.ts'
import { needsSandbox, titled } from '../../test/support/sandboxed.ts'

// An AI agent whose configuration has [tools.exec] without a host. Its commands run in a sandbox, or not at all.

const TOOLS = '\n[tools.exec]\nask = "off"\n'

test(titled('O1: by default, a command of an AI agent runs in a sandbox that has only its directory'), needsSandbox, async (t) => {
  const place = await mcpPlace(t, { mcp: TOOLS })
  await writeFile(join(place.dir, 'letter'), 'a letter')
  const server = await startMcp(t, {}, { place })
  const text = `pwd; ls -A ..; cat ${place.config} ${place.dir}/letter 2>/dev/null; tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d " "; echo kept > kept`
  const ran = await server.run('exec_capture', { command: 'sh', args: ['-c', text] })
  assert.deepEqual([ran.success, ran.stdout], [true, `${place.root}\nroot\nlo\n`], JSON.stringify(ran))
  assert.equal(ran.ran_on?.host, 'sandbox')
  assert.equal(existsSync(join(place.root, 'kept')), true)
  const request = (await server.lines()).find(({ event }) => event === 'request') as Record<string, unknown> | undefined
  assert.equal((request?.['ran_on'] as { host: string } | undefined)?.host, 'sandbox')
})

test(titled('SIGKILL of the MCP server of an AI agent ends all processes in its sandbox'), needsSandbox, async (t) => {
  const server = await startMcp(t, { mcp: TOOLS })
  const mark = `x0x-sandbox-${process.pid}-${Math.random().toString(16).slice(2)}`
  killMarked(t, mark)
  const text = `MARK=${mark} setsid sh -c "trap '' TERM HUP; while :; do sleep 0.05; done" & wait`
  await server.run('exec_capture', { command: 'sh', args: ['-c', text], answer_within_ms: 0 })
  await until(() => marked(mark).length > 0)
  process.kill(server.pid, 'SIGKILL')
  await until(() => marked(mark).length === 0)
})

test(
  titled('without bubblewrap a command is denied, the denial names the package, and nothing runs on the host'),
  { skip: needsSandbox.skip || !isRoot },
  async (t) => {
    const hide =
      'for at in /usr/bin/bwrap /bin/bwrap /usr/local/bin/bwrap; do [ -e "$at" ] && mount --bind /dev/null "$at"; done; exec "$@"'
    const server = await startMcp(t, { mcp: TOOLS }, { through: ['unshare', '-m', 'sh', '-c', hide, 'sh'] })
    const denied = await server.run('exec_status', { command: 'touch', args: ['ran'] })
    assert.equal(denied.denial_reason, 'sandbox_unavailable', JSON.stringify(denied))
    assert.match(JSON.stringify(denied), /package bubblewrap/)
    assert.equal(existsSync(join(server.root, 'ran')), false)
    assert.deepEqual(
      (await server.lines()).map(({ event }) => event),
      ['session', 'refused'],
    )
  },
)
