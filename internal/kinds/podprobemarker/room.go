package podprobemarker

import (
	"encoding/json"
	"slices"
)

// Limits of one NodePodProbe: the API server stores no object of more than 1.5 MiB, and a namespace that asks
// for many probes must not displace the probes of others (PPM-034).
const (
	// MostListBytes is the maximum size of its list, with the space reserved for results.
	MostListBytes = 640 << 10
	// MostListed is the maximum number of its probes.
	MostListed = 2000
	// resultBytes is reserved for the result of each probe, in addition to its name: see MessageBytes.
	resultBytes = 384
	// statusBytes is the maximum size of all results.
	statusBytes = 384 << 10
)

// MessageBytes returns the maximum length of a result's message, as JSON, on a node with that many probes: at
// most 1024 bytes (PPM-092), and less if all of them together would make the NodePodProbe too long.
func MessageBytes(probes int) int {
	const fixed = 256 // name, state and times of a typical result
	if probes <= 0 {
		return 1024
	}
	return min(1024, max(32, statusBytes/probes-fixed))
}

// cost returns the size of an entry in the list, including that of its pod for the pod's first entry.
func cost(wishes []wish, i int) int {
	w := &wishes[i]
	text, err := json.Marshal(&w.entry)
	if err != nil {
		return MostListBytes
	}
	n := len(text) + len(w.entry.Name) + resultBytes
	if i == 0 || wishes[i-1].pod != w.pod {
		// The pod is named in the list and in the results.
		n += 2 * (len(w.pod.Namespace) + len(w.pod.Name) + len(w.pod.UID) + 100)
	}
	return n
}

// fit sets a fault on the probes that do not fit. Namespaces share the space: none gets less than its share
// because another one asks for more. Within a namespace liveness probes come first, because kubelet does not
// run them any more, then the first pods and the first PodProbeMarkers.
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
