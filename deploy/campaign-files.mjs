import { globSync } from 'node:fs'

/** Tests that take minutes: attacks at full speed, whole hosts, and random faults. */
export const CAMPAIGN_FILES = [
  'e2e/campaign/**/*.campaign.ts',
  'e2e/chaos.test.ts',
  'e2e/copy-chaos.test.ts',
  'e2e/fleet-chaos.test.ts',
  'e2e/rexd/fuzz.test.ts',
  'test/executor/local/many-runs.test.ts',
  'test/fs/race.test.ts',
]

/** Tests that need two processors, or measure time. They run alone. */
const ALONE = ['e2e/campaign/many-nodes.campaign.ts']
/** Tests that mostly wait: for leases, for paths to open, for hosts that boot, and for copies that resume. */
const WAITING = [
  'e2e/campaign/nat.campaign.ts',
  'e2e/campaign/systemd.campaign.ts',
  'e2e/campaign/fleet-tools.campaign.ts',
  'e2e/copy-chaos.test.ts',
]

/** Stages that run one after another. The lanes of a stage run in parallel, and at most one of them needs the processors all the time. */
export const campaignStages = () => [[ALONE], [WAITING, globSync(CAMPAIGN_FILES).filter((file) => ![...ALONE, ...WAITING].includes(file))]]
