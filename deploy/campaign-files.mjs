import { globSync } from 'node:fs'

/** What takes minutes: attacks at full speed, whole hosts, and chance. */
export const CAMPAIGN_FILES = [
  'e2e/campaign/**/*.campaign.ts',
  'e2e/chaos.test.ts',
  'e2e/fleet-chaos.test.ts',
  'e2e/rexd/fuzz.test.ts',
  'test/executor/local/many-runs.test.ts',
  'test/fs/race.test.ts',
]

/** Of these what mostly waits: for leases, for paths to open and for hosts that boot. */
const WAITING = ['e2e/campaign/nat.campaign.ts', 'e2e/campaign/systemd.campaign.ts']

/** One after another in each, so that nothing at full speed has another such beside it; what waits leaves it the machine. */
export const campaignLanes = () => [WAITING, globSync(CAMPAIGN_FILES).filter((file) => !WAITING.includes(file))]
