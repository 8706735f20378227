import assert from 'node:assert/strict'
import { mkdir, writeFile } from 'node:fs/promises'
import { userInfo } from 'node:os'

import { SCRUBBED_PATH } from '../../src/policy/environment.ts'
import { requirement, TIME, type Requirement } from './requirement.ts'
import { MAX_COMMAND_JSON } from '../../src/protocol/limits/daemon.ts'

const ARGV: readonly Requirement[] = [
  requirement(
    'exec.start/login',
    'a login shell runs the argv unchanged, if a shell is granted',
    'exec.start.login -32007',
    async (peer) => {
      const session = await peer.session()
      const log = await session.start({ argv: ['printf', '%s|', 'a b', '$HOME'], login: true })
      await log.finished()
      assert.equal(log.stdout.toString(), 'a b|$HOME|')
      const { session_id } = await peer.call('session.open', { client_name: 'test', requested_capabilities: ['exec'] })
      const { data } = await peer.failure(-32007, 'exec.start', { session_id, argv: ['true'], login: true })
      assert.equal(data['capability'], 'exec.shell')
    },
  ),
  requirement(
    'exec.start/argv',
    'the tokens reach the program unchanged',
    'exec.start exec.start.argv exec.start:process_id exec.start:started_at',
    async (peer) => {
      const session = await peer.session()
      const tokens = ['$HOME', '*', '; id', '`id`', '| cat', '', '~', 'a b', '\\n', '"', "'", 'ü 😀', 'line\nline']
      const { process_id, started_at } = await session.call('exec.start', { argv: ['printf', '%s\\0', ...tokens] })
      assert.match(String(process_id), /^p_[0-9a-f-]{36}$/)
      assert.match(String(started_at), TIME)
      const log = peer.log(process_id)
      assert.equal((await log.finished())['exit_code'], 0)
      assert.deepEqual(log.stdout.toString().split('\0').slice(0, -1), tokens)
    },
  ),
  requirement(
    'exec.start/form',
    'either argv, or shell with command, is required',
    'exec.start.argv exec.start.command exec.start.shell -32602',
    async (peer) => {
      const session = await peer.session()
      for (const params of [
        {},
        { argv: [] },
        { argv: [''] },
        { argv: [1] },
        { argv: ['true'], command: 'true' },
        { command: 'true' },
        { shell: true },
        { shell: true, argv: ['true'] },
        { shell: true, command: '' },
        { argv: ['echo', 'a\0b'] },
        { argv: Array.from({ length: 1_025 }, () => 'x') },
      ])
        await session.failure(-32602, 'exec.start', params)
      assert.deepEqual((await session.call('session.info'))['processes'], [])
    },
  ),
  requirement(
    'exec.start/argv-size',
    'argv and variable names together have a maximum size as JSON',
    'exec.start.argv exec.start.env -32008',
    async (peer) => {
      const session = await peer.session()
      const token = 'x'.repeat(30_000)
      const asked = (length: number) => ({ argv: ['true', ...Array.from({ length: 6 }, () => token), 'x'.repeat(length)] })
      const empty = JSON.stringify([asked(0).argv, []]).length
      await (await session.start(asked(MAX_COMMAND_JSON - empty))).finished()
      const { data } = await session.failure(-32008, 'exec.start', asked(MAX_COMMAND_JSON - empty + 1))
      assert.deepEqual(data, { code: 'resource_limit', limit: 'argv', asked: MAX_COMMAND_JSON + 1, max: MAX_COMMAND_JSON })
      const named = { ...asked(MAX_COMMAND_JSON - empty - '"CI"'.length + 1), env: { CI: '' } }
      await session.failure(-32008, 'exec.start', named)
    },
  ),
  requirement(
    'exec.start/shell',
    'with shell, the command goes to /bin/sh as one text',
    'exec.start.shell exec.start.command',
    async (peer) => {
      const session = await peer.session()
      const log = await session.shell('echo $((1 + 1)) | tr 2 3; exit 7')
      assert.equal((await log.finished())['exit_code'], 7)
      assert.equal(log.stdout.toString(), '3\n')
    },
  ),
  requirement(
    'exec.start/descriptors',
    'a program has only its three streams, and no descriptor of the server',
    'exec.start',
    async (peer) => {
      const session = await peer.session()
      const held = await session.start({ argv: ['cat'], stdin_open: true })
      const log = await session.start({ argv: ['ls', '/proc/self/fd'] })
      await log.finished()
      // The fourth descriptor is the directory that ls lists.
      assert.deepEqual(log.stdout.toString().trim().split('\n'), ['0', '1', '2', '3'])
      await session.call('exec.input', { process_id: held.id, data: '', eof: true })
    },
  ),
  requirement(
    'exec.error/launch',
    'a program that the system cannot start causes exec.error and no other event',
    'exec.error exec.error:session_id exec.error:process_id exec.error:code exec.error:message exec.error:data -32010',
    async (peer) => {
      const session = await peer.session()
      await writeFile(session.path('broken'), '#!/no/such/interpreter\n', { mode: 0o755 })
      const log = await session.start({ argv: [session.path('broken')] })
      const error = await log.error
      assert.deepEqual([error['session_id'], error['code']], [session.id, -32010])
      assert.match(String(error['message']), /interpreter/)
      assert.equal(typeof (error['data'] as Record<string, unknown>)['code'], 'string')
      assert.notEqual((await session.wait(log))['status'], 'running')
      await session.call('session.info')
      assert.deepEqual(
        log.events.map(({ method }) => method),
        ['exec.error'],
      )
    },
  ),
]

const PLACE: readonly Requirement[] = [
  requirement(
    'exec.start/cwd',
    'a command starts in the first root, or in the directory cwd below a root',
    'exec.start.cwd session.info:cwd -32002 -32009 -32010',
    async (peer) => {
      const session = await peer.session()
      await mkdir(session.path('sub/deep'), { recursive: true })
      await writeFile(session.path('file'), '')
      const where = async (params: object): Promise<string> => {
        const log = await session.start({ argv: ['pwd', '-P'], ...params })
        await log.finished()
        return log.stdout.toString().trim()
      }
      assert.equal(await where({}), session.dir)
      assert.equal(await where({ cwd: 'sub' }), session.path('sub'))
      assert.equal(await where({ cwd: 'sub/../sub/./deep/' }), session.path('sub/deep'))
      assert.equal(await where({ cwd: session.path('sub') }), session.path('sub'))
      for (const cwd of ['..', '/', '/etc', `${session.dir}x`, 'sub/../../..'])
        assert.deepEqual((await session.failure(-32002, 'exec.start', { argv: ['pwd'], cwd })).data['allowed_roots'], [session.dir])
      await session.failure(-32009, 'exec.start', { argv: ['pwd'], cwd: 'missing' })
      await session.failure(-32010, 'exec.start', { argv: ['pwd'], cwd: 'file' })
    },
  ),
  requirement('exec.start/env', 'variables are added to a small fixed environment', 'exec.start.env -32001 -32602', async (peer) => {
    const session = await peer.session()
    const log = await session.start({ argv: ['env'], env: { LC_TIME: 'good day', CI: '' } })
    await log.finished()
    const base = [`HOME=${userInfo().homedir}`, 'LANG=C.UTF-8', 'LC_ALL=C.UTF-8', `PATH=${SCRUBBED_PATH}`]
    // Containment by a process group adds the variable X0X_RUN.
    const lines = log.stdout.toString().trim().split('\n')
    assert.deepEqual(lines.filter((line) => !line.startsWith('X0X_RUN=')).sort(), ['CI=', 'LC_TIME=good day', ...base].sort())
    for (const name of ['LD_PRELOAD', 'PATH', 'OTHER', 'lc_time', 'LC_TIME=x']) {
      const { data } = await session.failure(-32001, 'exec.start', { argv: ['env'], env: { [name]: 'x' } })
      assert.equal(data['variable'], name)
    }
    for (const env of [{ LC_TIME: 1 }, { LC_TIME: null }, { '': 'x' }, ['LC_TIME'], { LC_TIME: 'a\0b' }])
      await session.failure(-32602, 'exec.start', { argv: ['env'], env })
  }),
]

export const EXEC_REQUIREMENTS: readonly Requirement[] = [...ARGV, ...PLACE]
