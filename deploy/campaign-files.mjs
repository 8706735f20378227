import { globSync } from 'node:fs'

/** What takes minutes: attacks at full speed, whole hosts, and chance. */
export const CAMPAIGN_FILES = [
  'e2e/campaign/**/*.campaign.ts',
  'e2e/chaos.test.ts',
  'e2e/copy-chaos.test.ts',
  'e2e/fleet-chaos.test.ts',
  'e2e/rexd/fuzz.test.ts',
  'test/executor/local/many-runs.test.ts',
  'test/fs/race.test.ts',
]

/** Of these what two processors are few for, and what is held to how soon it is done. */
const ALONE = ['e2e/campaign/many-nodes.campaign.ts']
/** What mostly waits: for leases, for paths to open and for hosts that boot. */
const WAITING = ['e2e/campaign/nat.campaign.ts', 'e2e/campaign/systemd.campaign.ts', 'e2e/campaign/fleet-tools.campaign.ts']

/** Stages that follow one another, each of lanes beside one another: nothing at full speed has another such beside it, and what waits leaves it the machine. */
export const campaignStages = () => [[ALONE], [WAITING, globSync(CAMPAIGN_FILES).filter((file) => ![...ALONE, ...WAITING].includes(file))]]
