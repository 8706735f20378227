import type { Stage as RunStage } from '../src/base/run-stages.ts'
import { until, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import { befriend, restClientOf, TRUE } from './pair.ts'
import { tableOf, type Section } from './report.ts'
import type { Stage } from './stage.ts'
import { summarize } from './stats.ts'

type Reached = RunStage | 'called' | 'returned'

/** Pairs of successive stages, and what happens between them. */
const STEPS: readonly (readonly [Reached, Reached, string])[] = [
  ['called', 'asked', "client → requester's network process: HTTP over the unix socket, checks, body"],
  ['asked', 'connected', 'a greeted stream of the link'],
  ['connected', 'sign_asked', '→ its executor process'],
  ['sign_asked', 'signed', 'ML-DSA-65 signature, and the line in requests.jsonl with its fdatasync'],
  ['signed', 'sent', '→ its network process, sealed, written to the wire'],
  ['sent', 'received', "wire → the target's network process: TCP, Noise, yamux, opened"],
  ['received', 'permitted', '→ its executor: signature, replay, trust, ACL'],
  ['permitted', 'journalled', 'the request line with its fdatasync, the mark of a running run'],
  ['journalled', 'spawned', 'process tree, fork, exec'],
  ['spawned', 'ended', 'the program, its exit, the end of its process tree, its output'],
  ['ended', 'exit_signed', 'ML-DSA-65 signature, and the exit line with its fdatasync'],
  ['exit_signed', 'exit_received', "→ its network process, sealed, wire → the requester's network process, opened"],
  ['exit_received', 'exit_verified', 'signature, hashes and totals of the Exit'],
  ['exit_verified', 'returned', 'the JSON answer, read by the client'],
]

/** Stages of one run in each log. */
const STAGES_OF: Readonly<Record<string, number>> = { alice: 7, bob: 6 }

const nowUs = (): number => Number(process.hrtime.bigint() / 1_000n)

/** When each run reached each stage, according to the log of a daemon. */
const readStages = async (daemon: TestDaemon): Promise<Map<string, Map<Reached, number>>> => {
  const runs = new Map<string, Map<Reached, number>>()
  for (const line of (await daemon.log()).split('\n')) {
    if (!line.includes('"run stages"')) continue
    const { stages } = JSON.parse(line) as { stages: Record<string, Partial<Record<RunStage, number>>> }
    for (const [id, reached] of Object.entries(stages))
      runs.set(id, new Map([...(runs.get(id) ?? []), ...(Object.entries(reached) as [RunStage, number][])]))
  }
  return runs
}

/** Measures the stages of one warm run. */
export const breakdown = async ({ mesh, plan }: Stage): Promise<Omit<Section, 'title'>> => {
  const env = { X0X_LOG_LEVEL: 'debug' }
  const [alice, bob] = [mesh.add('alice', { env }), mesh.add('bob', { env })]
  await befriend(alice, bob, [TRUE])
  const client = await restClientOf(alice)
  const runs = new Map<string, Map<Reached, number>>()
  for (let round = 0; round < 2 * plan.rounds; round++) {
    const called = nowUs()
    const { request_id } = JSON.parse(await client.post('/exec/run', { agent_id: bob.agentId, argv: TRUE })) as { request_id: string }
    // The earlier rounds warm up.
    if (round >= plan.rounds)
      runs.set(
        request_id,
        new Map([
          ['called', called],
          ['returned', nowUs()],
        ]),
      )
  }
  client.close()
  // A daemon logs the stages of a run some time after its end. Those of the last run come last.
  const last = [...runs.keys()].at(-1)!
  for (const daemon of [alice, bob]) {
    await until('the last run is logged', async () => (await readStages(daemon)).get(last)?.size === STAGES_OF[daemon.name])
    for (const [id, reached] of await readStages(daemon)) for (const [stage, at] of reached) runs.get(id)?.set(stage, at)
  }
  const between = (from: Reached, to: Reached): number[] =>
    [...runs.values()].map((stages) => (stages.get(to)! - stages.get(from)!) / 1_000)
  const whole = summarize(between('called', 'returned'))
  const lines = STEPS.map(([from, to, what]) => {
    const { median, p99 } = summarize(between(from, to))
    return [`${from} → ${to}`, what, median.toFixed(2), p99.toFixed(2), `${Math.round((100 * median) / whole.median)} %`]
  })
  lines.push(['called → returned', 'the whole', whole.median.toFixed(2), whole.p99.toFixed(2), ''])
  const intro = `\`/bin/true\` over REST, one run after the other. Both daemons log the stages at level debug, with the common clock of the machine. Medians of ${plan.rounds} runs.`
  return { intro, table: tableOf(['from → to', 'what happens', 'median, ms', 'p99, ms', 'of the whole'], lines) }
}
