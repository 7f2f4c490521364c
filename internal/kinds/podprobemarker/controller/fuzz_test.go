package controller

import (
	"testing"

	"github.com/afloat-project/afloat/internal/framework/webhooktest"
)

const fuzzedPodProbeMarker = `{"selector":{"matchLabels":{"app":"web"}},"probes":[{"name":"idle","containerName":"app","podConditionType":"example.com/idle",` +
	`"probe":{"httpGet":{"path":"/idle","port":80}},"markerPolicy":[{"state":"Succeeded","labels":{"idle":"true"}}]}]}`

const fuzzedNodePodProbe = `{"podProbes":[{"name":"web-0","namespace":"shop","uid":"u","probes":[{"name":"a#b","containerName":"app",` +
	`"probe":{"exec":{"command":["true"]}}}]}]}`

// FuzzWebhooksOfPodProbeMarkers: what is added to PodProbeMarkers applies and is added once, every answer
// has a bound, and what may be created may be updated without a change.
func FuzzWebhooksOfPodProbeMarkers(f *testing.F) {
	webhooktest.Fuzz(f, PodProbeMarker, nil, nil, fuzzedPodProbeMarker)
}

// FuzzWebhooksOfNodePodProbes: what is added to NodePodProbes applies and is added once, every answer has a
// bound, and what may be created may be updated without a change.
func FuzzWebhooksOfNodePodProbes(f *testing.F) {
	webhooktest.Fuzz(f, NodePodProbe, nil, nil, fuzzedNodePodProbe)
}
