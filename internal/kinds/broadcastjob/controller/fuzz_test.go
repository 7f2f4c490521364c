package controller

import (
	"testing"

	"github.com/afloat-project/afloat/internal/framework/webhooktest"
)

const fuzzedBroadcastJob = `{"template":{"metadata":{"labels":{"app":"web"}},"spec":{"restartPolicy":"Never","containers":[{"name":"app","image":"app:1"}]}},"parallelism":"50%",` +
	`"completionPolicy":{"type":"Always","ttlSecondsAfterFinished":5},"failurePolicy":{"type":"FailFast"}}`

// FuzzWebhooks: what is added to BroadcastJobs applies and is added once, every answer has a bound, and
// what may be created may be updated without a change.
func FuzzWebhooks(f *testing.F) {
	webhooktest.Fuzz(f, BroadcastJob, nil, nil, fuzzedBroadcastJob)
}
