import assert from 'node:assert/strict'
import { execFile, execFileSync } from 'node:child_process'
import { mkdir, mkdtemp, realpath, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

/**
 * `node e2e/inspector.ts DIR` sends requests to `x0x mcp` with the command line of the MCP inspector, which is installed in DIR. It starts
 * the server as `x0x mcp --init` describes. The exit status is 1 if an answer is wrong, or if the inspector does not notice a broken
 * server.
 */

const X0X = fileURLToPath(new URL('../deploy/bin/x0x.cjs', import.meta.url))
const CALL_MS = 60_000

interface Asked {
  readonly status: number
  readonly answer: {
    readonly tools?: readonly { readonly name: string }[]
    readonly isError?: boolean
    readonly structuredContent?: Record<string, unknown>
  }
  readonly text: string
}

class Inspected {
  readonly #inspector: string
  readonly #env: Record<string, string>
  readonly #client: string

  constructor(init: { readonly inspector: string; readonly env: Record<string, string>; readonly client: string }) {
    this.#inspector = init.inspector
    this.#env = init.env
    this.#client = init.client
  }

  async ask(method: string, ...args: readonly string[]): Promise<Asked> {
    const line = [this.#inspector, '--cli', '--config', this.#client, '--server', 'x0x', '--method', method, ...args]
    return new Promise((resolve) => {
      execFile(process.execPath, line, { env: this.#env, timeout: CALL_MS, encoding: 'utf8' }, (error, stdout, stderr) => {
        const text = `${stdout}${stderr}`
        const status = error === null ? 0 : typeof error.code === 'number' ? error.code : 1
        resolve({ status, text, answer: answerIn(stdout) })
      })
    })
  }

  async call(tool: string, args: Readonly<Record<string, unknown>>): Promise<Asked> {
    const given = Object.entries(args).map(([name, value]) => `${name}=${JSON.stringify(value)}`)
    return this.ask('tools/call', '--tool-name', tool, ...(given.length === 0 ? [] : ['--tool-arg', ...given]))
  }

  /** Calls a tool that must succeed. Returns its result. */
  async done(tool: string, args: Readonly<Record<string, unknown>>): Promise<Record<string, unknown>> {
    const { status, answer, text } = await this.call(tool, args)
    assert.deepEqual([status, answer.isError], [0, false], `${tool}: ${text}`)
    return answer.structuredContent ?? assert.fail(`${tool}: ${text}`)
  }
}

const answerIn = (text: string): Asked['answer'] => {
  try {
    return JSON.parse(text) as Asked['answer']
  } catch {
    return {}
  }
}

const TOOLS = [
  'which_command',
  'check_host',
  'exec_status',
  'exec_capture',
  'exec_with_input',
  'exec',
  'exec_wait',
  'exec_list',
  'read_file',
  'write_file',
  'edit_file',
  'apply_patch',
]

/** Makes one call of each kind. Returns their number. */
const inspect = async (inspected: Inspected): Promise<number> => {
  const { answer, text } = await inspected.ask('tools/list')
  const names = answer.tools?.map(({ name }) => name) ?? []
  for (const name of TOOLS) assert.ok(names.includes(name), `${name} is not offered: ${text}`)
  const denied = inspected.call('exec_status', { command: 'cat' })
  const calls = [
    inspected.done('which_command', { command: 'ls' }).then(({ found }) => assert.equal(found, true)),
    inspected.done('check_host', {}).then(({ reachable }) => assert.equal(reachable, true)),
    inspected.done('exec_status', { command: 'date' }).then(({ success }) => assert.equal(success, true)),
    inspected.done('exec_capture', { command: 'ls', args: ['-la'] }).then(({ stdout }) => assert.match(String(stdout), /^total/)),
    inspected.done('exec_with_input', { command: 'true', stdin: 'text' }).then(({ exit_code }) => assert.equal(exit_code, 0)),
    inspected.done('exec_list', {}).then(({ runs }) => assert.ok(Array.isArray(runs))),
  ]
  await Promise.all(calls)
  await inspected.done('write_file', { path: 'a', content: 'one two' })
  await inspected.done('edit_file', { path: 'a', old_string: 'two', new_string: 'three' })
  assert.equal((await inspected.done('read_file', { path: 'a' }))['content'], 'one three')
  const refused = await denied
  assert.notEqual(refused.status, 0)
  assert.equal(refused.answer.structuredContent?.['denial_reason'], 'command_denied', refused.text)
  return calls.length + 5
}

/** Creates a command called `x0x` in its own directory. */
const command = async (directory: string, text: string): Promise<string> => {
  await mkdir(directory)
  await writeFile(join(directory, 'x0x'), `#!/bin/sh\n${text}\n`, { mode: 0o755 })
  return directory
}

const main = async (installed: string): Promise<void> => {
  const inspector = join(installed, 'node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js')
  const dir = await realpath(await mkdtemp(join(tmpdir(), 'x0x-inspector-')))
  try {
    const [work, client] = [join(dir, 'work'), join(dir, 'client.json')]
    await mkdir(work)
    const start = `'${process.execPath}' '${X0X}' "$@"`
    const [right, wrong] = [
      await command(join(dir, 'right'), `exec ${start}`),
      await command(join(dir, 'wrong'), `${start} | sed -u 's/"structuredContent":/"content_of_old":/'`),
    ]
    const envWith = (path: string) => ({
      HOME: dir,
      PATH: [path, dirname(process.execPath), process.env['PATH']].join(delimiter),
      MCP_INSPECTOR_SECRET_STORE: 'memory',
    })
    await writeFile(
      client,
      execFileSync(join(right, 'x0x'), ['mcp', '--init', work], { env: envWith(right), stdio: ['ignore', 'pipe', 'ignore'] }),
    )
    const count = await inspect(new Inspected({ inspector, client, env: envWith(right) }))
    const broken = await new Inspected({ inspector, client, env: envWith(wrong) }).call('exec_status', { command: 'date' })
    assert.notEqual(broken.status, 0, `a server without structured content was not noticed: ${broken.text}`)
    console.log(`inspector: ${count} questions, each answered as it must be; a server that answers wrongly was noticed`)
  } finally {
    await rm(dir, { recursive: true, force: true, maxRetries: 10 })
  }
}

await main(process.argv[2] ?? assert.fail('where is the inspector installed?'))
