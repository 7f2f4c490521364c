package judge

import (
	"encoding/json"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// spec has the fields of all kinds that rules need to know.
type spec struct {
	Replicas            *int                  `json:"replicas"`
	Selector            *metav1.LabelSelector `json:"selector"`
	PodManagementPolicy string                `json:"podManagementPolicy"`
	// Of a PodUnavailableBudget.
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable"`
	MinAvailable   *intstr.IntOrString `json:"minAvailable"`
	// Of a BroadcastJob.
	Parallelism *intstr.IntOrString `json:"parallelism"`
	// Of a SidecarSet.
	Containers []container `json:"containers"`
	// Of a workload, and of a UnitedDeployment.
	Template struct {
		template
		CloneSetTemplate struct {
			Spec struct {
				Template template `json:"template"`
			} `json:"spec"`
		} `json:"cloneSetTemplate"`
	} `json:"template"`
	// Of an AdvancedCronJob.
	Paused            bool   `json:"paused"`
	ConcurrencyPolicy string `json:"concurrencyPolicy"`
	HistoryLimit      *int   `json:"successfulJobsHistoryLimit"`
	// Of a ResourceDistribution.
	Resource struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Data map[string]string `json:"data"`
	} `json:"resource"`
	Targets struct {
		Included struct {
			List []struct {
				Name string `json:"name"`
			} `json:"list"`
		} `json:"includedNamespaces"`
	} `json:"targets"`
	// Of a PersistentPodState.
	TargetRef struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Name       string `json:"name"`
	} `json:"targetRef"`
	Required struct {
		Keys []string `json:"keys"`
	} `json:"requiredPersistentTopology"`
	Preferred []struct {
		Preference struct {
			Keys []string `json:"keys"`
		} `json:"preference"`
	} `json:"preferredPersistentTopology"`
	// Of a UnitedDeployment.
	Topology struct {
		Subsets []struct {
			Name string `json:"name"`
		} `json:"subsets"`
	} `json:"topology"`
	// Of a WorkloadSpread.
	Subsets []struct {
		Name        string              `json:"name"`
		MaxReplicas *intstr.IntOrString `json:"maxReplicas"`
	} `json:"subsets"`

	UpdateStrategy struct {
		Type          string `json:"type"`
		rolling       `json:",inline"`
		RollingUpdate rolling `json:"rollingUpdate"`
	} `json:"updateStrategy"`
	ScaleStrategy struct {
		PodsToDelete []string `json:"podsToDelete"`
	} `json:"scaleStrategy"`
}

type container struct {
	Name  string `json:"name"`
	Image string `json:"image"`
}

// template is that of pods.
type template struct {
	Spec struct {
		Containers []container `json:"containers"`
	} `json:"spec"`
}

type rolling struct {
	PodUpdatePolicy string `json:"podUpdatePolicy"`
	// Type is what DaemonSets have in its place.
	Type           string              `json:"rollingUpdateType"`
	Paused         bool                `json:"paused"`
	Partition      *intstr.IntOrString `json:"partition"`
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable"`
	MaxSurge       *intstr.IntOrString `json:"maxSurge"`
}

// status has the numbers that are compared with the pods at the end.
type status struct {
	ObservedGeneration     int64  `json:"observedGeneration"`
	Replicas               int    `json:"replicas"`
	ReadyReplicas          int    `json:"readyReplicas"`
	UpdatedReplicas        int    `json:"updatedReplicas"`
	UpdateRevision         string `json:"updateRevision"`
	CurrentRevision        string `json:"currentRevision"`
	DesiredNumberScheduled int    `json:"desiredNumberScheduled"`
	UpdatedNumberScheduled int    `json:"updatedNumberScheduled"`
	NumberAvailable        int    `json:"numberAvailable"`
	MatchedPods            int    `json:"matchedPods"`
	UpdatedPods            int    `json:"updatedPods"`
	ReadyPods              int    `json:"readyPods"`
	Phase                  string `json:"phase"`
	// Of a PodUnavailableBudget.
	CurrentAvailable   int `json:"currentAvailable"`
	DesiredAvailable   int `json:"desiredAvailable"`
	UnavailableAllowed int `json:"unavailableAllowed"`
	// Conditions are those of all kinds.
	Conditions []struct {
		Type   string `json:"type"`
		Status string `json:"status"`
	} `json:"conditions"`
	// Active is a list of an AdvancedCronJob, and a number of a BroadcastJob.
	Active           json.RawMessage `json:"active"`
	LastScheduleTime *metav1.Time    `json:"lastScheduleTime"`
	// Of jobs and of a ResourceDistribution.
	Desired   int `json:"desired"`
	Match     int `json:"match"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Running   int `json:"running"`
	Waiting   int `json:"waiting"`
	// Of a PersistentPodState.
	PodStates map[string]place `json:"podStates"`
	// Of a UnitedDeployment, and of a WorkloadSpread.
	SubsetStatuses []struct {
		Name          string `json:"name"`
		Replicas      int    `json:"replicas"`
		ReadyReplicas int    `json:"readyReplicas"`
	} `json:"subsetStatuses"`
}

// share resolves a number or a percentage.
func share(value *intstr.IntOrString, of, otherwise int, up bool) int {
	if value == nil {
		return otherwise
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(value, of, up)
	if err != nil {
		return otherwise
	}
	return n
}

func (s *spec) replicas() int {
	if s.Replicas == nil {
		return 1
	}
	return *s.Replicas
}

// limits are what a workload's rollout must keep to.
type limits struct {
	// available is how many pods must be in service, most how many there may be, updated how many may be of
	// the new revision, and partition from which ordinal on.
	replicas, available, most, updated, partition int
}

// limitsOf returns the limits of a kind by one spec. Of a DaemonSet, replicas are the nodes.
func limitsOf(resource string, s *spec, nodes int) limits {
	replicas, r := s.replicas(), s.UpdateStrategy.RollingUpdate
	surge, unavailable := 0, 0
	switch resource {
	case "clonesets":
		if !r.Paused {
			surge = share(r.MaxSurge, replicas, 0, true)
		}
		unavailable = share(r.MaxUnavailable, replicas, (replicas+4)/5, surge == 0)
	case "daemonsets":
		replicas = nodes
		surge = share(r.MaxSurge, replicas, 0, true)
		unavailable = share(r.MaxUnavailable, replicas, 1, true)
	default:
		unavailable = max(1, share(r.MaxUnavailable, replicas, 1, true))
	}
	partition := share(r.Partition, replicas, 0, true)
	l := limits{replicas: replicas, available: replicas - unavailable, most: replicas + surge,
		updated: replicas - min(partition, replicas), partition: partition}
	if unavailable == 0 { // surge pods are of the new revision, too (CS-102)
		l.updated += surge
	}
	return l
}

// loosest joins limits so that each is the loosest of all.
func (s *state) loosest(of *object) limits {
	var all *limits
	specs := s.specs(of)
	for i := range specs {
		l := limitsOf(of.resource, &specs[i], s.nodes())
		if all == nil {
			all = &l
			continue
		}
		all.replicas = min(all.replicas, l.replicas)
		all.available = min(all.available, l.available)
		all.most = max(all.most, l.most)
		all.updated = max(all.updated, l.updated)
		all.partition = min(all.partition, l.partition)
	}
	return *all
}

// nodes returns how many nodes there are.
func (s *state) nodes() int {
	n := 0
	for k := range s.objects {
		if k.resource == "nodes" {
			n++
		}
	}
	return n
}

// newest returns the revision with the highest number of a workload: its name, which ends with the hash that
// labels have.
func (s *state) newest(of *object) string {
	name, number := "", int64(0)
	for k, o := range s.objects {
		if k.resource == "controllerrevisions" && o.owner() == of.UID && o.number > number {
			name, number = o.Name, o.number
		}
	}
	return name
}

// sameRevision reports whether a label names a revision, in full or by its hash.
func sameRevision(label, revision string) bool {
	return label != "" && (label == revision || strings.HasSuffix(revision, "-"+label))
}

// ordinal returns the number at the end of a pod's name.
func ordinal(name string) int {
	n, err := strconv.Atoi(name[strings.LastIndex(name, "-")+1:])
	if err != nil {
		return -1
	}
	return n
}
