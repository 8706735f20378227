import assert from 'node:assert/strict'
import fs, { chmodSync, mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { test, type TestContext } from 'node:test'

import { ANSWER_FRESH_MS, openApproval, sealAnswer, SpentAnswers } from '../../../src/policy/approval/approval.ts'
import type { Approval, ApprovalRequest } from '../../../src/policy/approval/approval.ts'
import { authorizeLocalRun } from '../../../src/policy/local/authorize.ts'
import type { ExecInForce } from '../../../src/policy/local/local-asking.ts'
import type { Permit } from '../../../src/policy/permit.ts'
import { sandboxGrant } from '../../../src/policy/sandbox/sandbox-grant.ts'
import { DEFAULT_SANDBOX } from '../../../src/policy/sandbox/sandbox-settings.ts'
import { PrivateCopies } from '../../../src/process/private-copies.ts'
import { spawnPermitted, type SpawnedProgram } from '../../../src/process/spawn.ts'
import { needs, openCells } from '../../support/containment.ts'
import { ASKING, policyOf, rightsOf, slotsOf } from '../../support/local-policy.ts'
import { startGuardian } from '../../support/processes.ts'
import { tempDir } from '../../support/temp-dir.ts'

// The requester exchanges a file before each system call that policy makes about it, for the request and again for the decision.

const KEY = Buffer.alloc(32, 1)

const approvalOf = ({ permit_sha256 }: ApprovalRequest): Approval => {
  const answer = { question_id: 'q_1', permit_sha256, by: 'human:ann', reason: '', nonce: 'n', expires_at_ms: ANSWER_FRESH_MS }
  const opened = openApproval(sealAnswer({ ...answer, decision: 'allow' }, KEY), answer, { key: KEY, now: 1, spent: new SpentAnswers() })
  assert.ok(opened.kind === 'approval')
  return opened.approval
}

const EXEC: Omit<ExecInForce, 'host'> = {
  security: 'allowlist',
  ask: 'always',
  ask_fallback: 'deny',
  door: 'mcp',
  label: 'coder',
  stdin: null,
  always_ask: [],
}

const CALLS = ['openSync', 'statSync', 'lstatSync', 'accessSync'] as const

/** Calls `before` with a number, before each system call of `look` that names a path below the directory. */
const watching = <T>(directory: string, before: (call: number) => void, look: () => T): { readonly value: T; readonly calls: number } => {
  const original = Object.fromEntries(CALLS.map((name) => [name, fs[name]]))
  const { native } = fs.realpathSync
  let calls = 0
  const watched =
    (call: (...args: never[]) => unknown) =>
    (...args: unknown[]): unknown => {
      if (String(args[0]).startsWith(`${directory}/`)) before(calls++)
      return call(...(args as never[]))
    }
  try {
    for (const name of CALLS) Object.assign(fs, { [name]: watched(original[name] as never) })
    fs.realpathSync.native = watched(native) as typeof native
    syncBuiltinESMExports()
    return { value: look(), calls }
  } finally {
    Object.assign(fs, original)
    fs.realpathSync.native = native
    syncBuiltinESMExports()
  }
}

interface Exchange {
  readonly way: 'link' | 'directory'
  readonly first: string
  readonly second: string
  readonly from: number
  readonly upTo: number
}

/** A root where `d/tool` is one of several programs, selected by a link or a directory, and an interpreter that one of them names. */
const setUp = async (t: TestContext, host: ExecInForce['host']) => {
  const dir = await tempDir(t)
  const [work, dataDir] = [join(dir, 'work'), join(dir, 'data')]
  for (const directory of [work, dataDir, join(work, 'honest'), join(work, 'other'), join(work, 'changed')])
    mkdirSync(directory, { mode: 0o700 })
  const [own, place] = [join(work, 'own-sh'), join(work, 'd')]
  const program = (path: string, content: string): void => {
    writeFileSync(path, content)
    chmodSync(path, 0o755)
  }
  program(join(work, 'honest', 'tool'), '#!/bin/sh\necho GOOD\n')
  program(join(work, 'other', 'tool'), `#!${own}\necho GOOD\n`)
  program(join(work, 'changed', 'tool'), '#!/bin/sh\necho CHANGED\n')
  const lead = (path: string, to: string): void => {
    symlinkSync(to, join(work, 'new'))
    renameSync(join(work, 'new'), path)
  }
  lead(own, '/bin/sh')
  let stands: string | null = null
  const ways = {
    link: (to: string): void => lead(place, to),
    directory: (to: string): void => {
      if (stands !== null) renameSync(place, join(work, stands))
      renameSync(join(work, to), place)
      stands = to
    },
  }
  const policy = policyOf([work], { security: 'allow_write = true' })
  const rights = rightsOf(policy)
  const grant = sandboxGrant(DEFAULT_SANDBOX, work)
  assert.ok(grant.kind === 'grant')
  const components = { trees: await openCells(t, 'auto'), copies: new PrivateCopies({ dataDir }), cleanup: startGuardian(t) }
  const context = { policy, rights, session_id: 's_1', exec: { ...EXEC, host }, sandbox: host === 'sandbox' ? grant.grant : null }
  return {
    tool: join(place, 'tool'),
    /** The decision of policy while `d/tool` is another program from one system call up to a later one. */
    look: (argv: readonly string[], { way, first, second, from, upTo }: Exchange, approval: Approval | null) => {
      ways[way](first)
      const exchange = (call: number): void => {
        if (call === from || call === upTo) ways[way](call === from ? second : first)
      }
      const authorize = () =>
        authorizeLocalRun({ ...ASKING, argv }, { path: work, descriptor: null }, { ...context, slots: slotsOf(rights.limits) }, approval)
      return watching(work, exchange, authorize)
    },
    /** Removes the link of `d`, so that the next exchanges can use directories. */
    clear: (): void => {
      if (stands === null) rmSync(place)
    },
    /** The output of a permit after `d/tool` and the interpreter were exchanged, or the error if nothing runs. */
    output: async (permit: Permit, way: keyof typeof ways, to: string): Promise<string> => {
      ways[way](to)
      rmSync(own)
      program(own, '#!/bin/sh\necho EVIL\n')
      const result = await spawnPermitted(permit, components, { stdin: false })
      const said = result.kind === 'spawn_failed' ? result.detail : await outputOf(result.child)
      rmSync(own)
      lead(own, '/bin/sh')
      return said
    },
  }
}

const outputOf = async ({ stdout, stderr, exited }: SpawnedProgram): Promise<string> => {
  const [said] = await Promise.all([text(stdout), text(stderr), exited])
  return said
}

const COMMANDS = [
  ['a program called directly', []],
  ['a program behind another', ['env']],
  ['a program named twice in argv, also after an interpreter', ['env', '-u', 'sh', 'd/tool']],
] as const

for (const host of ['gateway', 'sandbox'] as const)
  for (const [what, before] of host === 'sandbox' ? COMMANDS.slice(-1) : COMMANDS)
    test(
      `${what} (${host}) never runs an interpreter that was exchanged later, whenever its file is exchanged`,
      host === 'sandbox' ? needs.bwrap : {},
      async (t) => {
        const { tool, look, clear, output } = await setUp(t, host)
        const argv = [...before, tool]
        const outputs = new Map<string, string>()
        const tryOut = async (exchange: Exchange): Promise<number> => {
          const asked = look(argv, exchange, null)
          assert.ok(asked.value.kind === 'ask', asked.value.kind)
          const { question } = asked.value
          const { value } = look(argv, exchange, approvalOf(question))
          if (value.kind !== 'permit') return asked.calls
          value.slot.release()
          const words = value.permit.stand_in?.words ?? []
          const held = words.flatMap((word) => (typeof word === 'string' || word.sha256 === null ? [] : [word.sha256]))
          assert.deepEqual([...new Set(held)], [...new Set(question.writable.map(({ sha256 }) => sha256))])
          for (const to of ['honest', 'other']) {
            const key = JSON.stringify([words, value.permit.pins, to])
            if (!outputs.has(key)) outputs.set(key, await output(value.permit, exchange.way, to))
          }
          return asked.calls
        }
        for (const way of ['link', 'directory'] as const) {
          for (const [first, second] of [
            ['honest', 'other'],
            ['other', 'honest'],
            ['honest', 'changed'],
          ] as const)
            for (const length of [1, 8, Infinity])
              for (let from = 0, calls = 1; from <= calls; from += 1)
                calls = await tryOut({ way, first, second, from, upTo: from + length })
          clear()
        }
        const said = [...outputs.values()]
        assert.ok(said.includes('GOOD\n'), said.join('; '))
        assert.deepEqual(
          said.filter((one) => one.includes('EVIL')),
          [],
        )
        t.diagnostic(`${outputs.size} different runs`)
      },
    )
