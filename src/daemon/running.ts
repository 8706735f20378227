import { errorText } from '../base/errors.ts'
import { shortId } from '../protocol/ids.ts'
import { checkAcl } from './check.ts'
import type { DaemonConfig, Environment } from './config.ts'
import { checkExecFiles } from './exec-files.ts'
import { fail, ok, warn, type Finding } from './findings.ts'
import { checkHalves } from './halves.ts'
import { LocalApi } from './local-api.ts'
import { checkRunningRexd } from './served-rexd.ts'

interface RunningAnswers {
  readonly agent: { readonly agent_id: string; readonly machine_id: string }
  readonly peers: { readonly peers: readonly { readonly connected?: boolean }[] }
  readonly exec: {
    readonly acl_summary: { readonly loaded_from: string | null; readonly loaded_at: string | null }
    readonly journal?: { readonly path: string | null; readonly writable: boolean } | null
    readonly outgoing_journal: { readonly path: string; readonly writable: boolean }
  }
}

const ask = async (config: DaemonConfig, env: Environment): Promise<RunningAnswers> => {
  const api = new LocalApi({ instance: { name: config.name, dataDir: config.paths.dir }, url: null, env })
  const get = async <K extends keyof RunningAnswers>(path: string): Promise<RunningAnswers[K]> => api.json({ method: 'GET', path })
  const [agent, peers, exec] = await Promise.all([get<'agent'>('/agent'), get<'peers'>('/peers'), get<'exec'>('/diagnostics/exec')])
  return { agent, peers, exec }
}

const checkPeers = ({ peers }: RunningAnswers['peers']): Finding => {
  const connected = peers.filter((peer) => peer.connected !== false).length
  return connected > 0
    ? ok('peers', `${connected} connected`)
    : warn('peers', 'none is connected', 'x0x contacts import LINK, or --bootstrap; see x0x diagnostics mesh')
}

/** The ACL that the daemon was started with, which need not be the one that we would choose. */
const checkExec = async ({ acl_summary, journal }: RunningAnswers['exec']): Promise<Finding[]> => {
  const { loaded_from: path, loaded_at } = acl_summary
  if (path === null) return [ok('acl', 'the running daemon found no ACL file, so exec is disabled')]
  // It can say itself whether it can write; we may be another user.
  const files = (await checkExecFiles(path)).filter(({ topic }) => topic !== 'journal')
  return [
    ok('acl', `the running daemon uses ${path}, read ${loaded_at}`),
    ...(await checkAcl(path, true, null)),
    ...checkJournal(journal),
    ...files,
  ]
}

const checkJournal = (journal: RunningAnswers['exec']['journal']): Finding[] => {
  if (journal === undefined || journal === null || journal.path === null) return [ok('journal', 'the running daemon needs none')]
  if (journal.writable) return [ok('journal', `${journal.path}; the running daemon can write it`)]
  return [fail('journal', `the running daemon cannot write ${journal.path}: every request is denied`, 'make room or mend its permissions')]
}

const checkOutgoing = ({ path, writable }: RunningAnswers['exec']['outgoing_journal']): Finding =>
  writable
    ? ok('outgoing journal', `${path}; the running daemon can write it`)
    : fail('outgoing journal', `the running daemon cannot write ${path}: it asks others for nothing`, 'make room or mend its permissions')

/** What the running daemon itself says. */
export const checkRunning = async (config: DaemonConfig, pid: number, env: Environment): Promise<Finding[]> => {
  try {
    const { agent, peers, exec } = await ask(config, env)
    return [
      ok('daemon', `runs with pid ${pid}: agent ${shortId(agent.agent_id)}, machine ${shortId(agent.machine_id)}`),
      await checkHalves(config.paths, pid),
      ...(await checkRunningRexd(config)),
      checkPeers(peers),
      ...(await checkExec(exec)),
      checkOutgoing(exec.outgoing_journal),
    ]
  } catch (error) {
    return [
      fail(
        'daemon',
        `pid ${pid} holds the data directory but does not answer: ${errorText(error)}`,
        `look at its log; as a last resort: kill ${pid}`,
      ),
    ]
  }
}
