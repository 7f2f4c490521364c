package controller

import (
	"testing"

	"github.com/afloat-project/afloat/internal/framework/webhooktest"
)

const fuzzedEphemeralJob = `{"selector":{"matchLabels":{"app":"web"}},"template":{"ephemeralContainers":[{"name":"debug","image":"debug:1",` +
	`"resources":{},"env":[{"name":"a","value":"b"}]}]}}`

// FuzzWebhooks: what is added to EphemeralJobs applies and is added once, every answer has a bound, and
// what may be created may be updated without a change.
func FuzzWebhooks(f *testing.F) {
	webhooktest.Fuzz(f, EphemeralJob, nil, nil, fuzzedEphemeralJob)
}
