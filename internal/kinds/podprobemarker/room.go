package podprobemarker

import (
	"encoding/json"
	"slices"
)

// Bounds of one NodePodProbe, whatever is asked: the API server stores no object of more than 1.5 MiB, and
// who asks for much must not have the probes of others left out (PPM-034).
const (
	// MostListBytes is how long its list may be, with what is set aside for results.
	MostListBytes = 640 << 10
	// MostListed is how many probes it may have.
	MostListed = 2000
	// resultBytes is set aside for the result of each probe, beside its name: see MessageBytes.
	resultBytes = 384
	// statusBytes is how long all results may be.
	statusBytes = 384 << 10
)

// MessageBytes is how long the message of a result may be, as JSON, where a node has that many probes: at
// most 1024 bytes (PPM-092), and less where all of them together would make the NodePodProbe too long.
func MessageBytes(probes int) int {
	const fixed = 256 // name, state and times of a usual result
	if probes <= 0 {
		return 1024
	}
	return min(1024, max(32, statusBytes/probes-fixed))
}

// cost is what an entry takes in the list, with its pod if it is the first of it.
func cost(wishes []wish, i int) int {
	w := &wishes[i]
	text, err := json.Marshal(&w.entry)
	if err != nil {
		return MostListBytes
	}
	n := len(text) + len(w.entry.Name) + resultBytes
	if i == 0 || wishes[i-1].pod != w.pod {
		// in the list and in the results
		n += 2 * (len(w.pod.Namespace) + len(w.pod.Name) + len(w.pod.UID) + 100)
	}
	return n
}

// fit gives what does not fit the fault that there is no room. Namespaces share: none gets less than its
// share because another asks for more. In a namespace liveness probes have precedence, which kubelet does not
// carry out any more; then the first pods, and the first PodProbeMarkers.
func fit(wishes []wish) {
	type demand struct {
		namespace     string
		bytes, probes int
		room, places  int
	}
	of := map[string]*demand{}
	var demands []*demand
	costs := make([]int, len(wishes))
	for i := range wishes {
		if wishes[i].fault != "" {
			continue
		}
		costs[i] = cost(wishes, i)
		d := of[wishes[i].pod.Namespace]
		if d == nil {
			d = &demand{namespace: wishes[i].pod.Namespace}
			of[d.namespace], demands = d, append(demands, d)
		}
		d.bytes += costs[i]
		d.probes++
	}
	share := func(total int, asked func(*demand) int, give func(*demand, int)) {
		slices.SortFunc(demands, func(a, b *demand) int { return asked(a) - asked(b) })
		for i, d := range demands {
			part := min(asked(d), total/(len(demands)-i))
			give(d, part)
			total -= part
		}
	}
	share(MostListBytes, func(d *demand) int { return d.bytes }, func(d *demand, n int) { d.room = n })
	share(MostListed, func(d *demand) int { return d.probes }, func(d *demand, n int) { d.places = n })
	for _, liveness := range []bool{true, false} {
		for i := range wishes {
			if wishes[i].fault != "" || (wishes[i].marker == nil) != liveness {
				continue
			}
			d, bytes := of[wishes[i].pod.Namespace], costs[i]
			if d.room < bytes || d.places < 1 {
				wishes[i].fault = full
				continue
			}
			d.room, d.places = d.room-bytes, d.places-1
		}
	}
}
