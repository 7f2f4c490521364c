package sidecarterminator

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/restart"
	"github.com/afloat-project/afloat/internal/engine/timing"
)

const (
	prefix = "sidecar-termination-"
	ignore = "-ignore"

	// The first pause after a request that did not stop a sidecar, and the longest; it doubles in between.
	firstPause, longestPause = 10 * time.Second, 5 * time.Minute
	// keep is how long a finished request is kept, in seconds. It is longer than any pause, so that the
	// number of the last request is known.
	keep = 900
	// slack is the time that a request may take in addition to the ends of its containers, in seconds: for
	// its turn, the start of the daemon, and late hooks.
	slack = 300
	// ofKubelet is the time that kubelet may take, in addition to the grace period, to stop a finished pod.
	ofKubelet = 30 * time.Second
	// Numbers of requests. From laterOn on, all pauses have the maximum length. It also follows the last
	// number; the earlier request of that number is gone by then.
	laterOn, last = 10, 99
)

var ending = regexp.MustCompile(`^(.+?)(-ignore)?(?:-([1-9][0-9]?))?$`)

// attempt is the content of a request's name.
type attempt struct {
	pod    types.UID
	ignore bool
	number int
}

func (a attempt) name() string {
	name := prefix + string(a.pod)
	if a.ignore {
		name += ignore
	}
	if a.number > 1 {
		name += "-" + strconv.Itoa(a.number)
	}
	return name
}

// attemptOf parses the name of a request; it returns false if the name has another form.
func attemptOf(name string) (attempt, bool) {
	if len(name) < len(prefix) || name[:len(prefix)] != prefix {
		return attempt{}, false
	}

	parts := ending.FindStringSubmatch(name[len(prefix):])
	if parts == nil {
		return attempt{}, false
	}

	a := attempt{pod: types.UID(parts[1]), ignore: parts[2] != "", number: 1}
	if parts[3] != "" {
		a.number, _ = strconv.Atoi(parts[3]) // at most two digits
	}

	return a, a.name() == name // canonical names only, so that a pod has a bounded number of requests
}

// PodUID returns the pod UID in the name of a request, or "" if the name has another form.
func PodUID(name string) types.UID {
	if a, ok := attemptOf(name); ok {
		return a.pod
	}
	return ""
}

// OwnerOf returns the name of the pod that controls the request. It is empty if no pod does, or if the name
// of the request has another form.
func OwnerOf(request *appsv1beta1.ContainerRecreateRequest) string {
	owner := metav1.GetControllerOfNoCopy(request)
	if uid := PodUID(request.Name); uid == "" || owner == nil || owner.UID != uid || owner.Kind != "Pod" {
		return ""
	}
	return owner.Name
}

// isFor reports whether the request was made for the pod. Anyone who creates such a request asks for what
// would be requested anyway.
func isFor(pod *corev1.Pod, request *appsv1beta1.ContainerRecreateRequest) bool {
	return OwnerOf(request) == pod.Name && PodUID(request.Name) == pod.UID &&
		request.Spec.PodName == pod.Name && restart.PodUID(request) == pod.UID
}

// history describes the requests of one group of sidecars.
type history struct {
	// ours are the requests for the pod: first one that is active, then the others, newest first. last is the
	// first of them, or nil.
	ours []*appsv1beta1.ContainerRecreateRequest
	last *appsv1beta1.ContainerRecreateRequest
	// taken are the numbers in use, and foreign the names that belong to somebody else.
	taken   map[int]bool
	foreign []string
}

func (s *Snapshot) history(ignored bool) history {
	h := history{taken: map[int]bool{}}
	for _, r := range s.Requests {
		a, ok := attemptOf(r.Name)
		if !ok || a.pod != s.Pod.UID || a.ignore != ignored {
			continue
		}
		h.taken[a.number] = true
		if !isFor(s.Pod, r) {
			h.foreign = append(h.foreign, r.Name)
			continue
		}
		h.ours = append(h.ours, r)
	}

	// Clocks of API servers may differ, so a request that is active comes first, whatever its creation time.
	slices.SortFunc(h.ours, func(a, b *appsv1beta1.ContainerRecreateRequest) int {
		return cmp.Or(order(Over(a))-order(Over(b)), b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
			numberOf(b)-numberOf(a))
	})
	if len(h.ours) > 0 {
		h.last = h.ours[0]
	}

	slices.Sort(h.foreign)
	return h
}

func order(over bool) int {
	if over {
		return 1
	}
	return 0
}

func numberOf(request *appsv1beta1.ContainerRecreateRequest) int {
	a, _ := attemptOf(request.Name)
	return a.number
}

// number returns the number of the newest request, or 0 if there is none.
func (h *history) number() int {
	if h.last == nil {
		return 0
	}
	return numberOf(h.last)
}

// next returns the number after that of the newest request, or false if all names are taken.
func (h *history) next() (int, bool) {
	number := h.number()
	for range last {
		if number++; number > last {
			number = laterOn
		}
		if !h.taken[number] {
			return number, true
		}
	}
	return 0, false
}

// pause returns how long to wait after the request of that number.
func pause(number int) time.Duration {
	wait := firstPause
	for ; number > 1 && wait < longestPause; number-- {
		wait *= 2
	}
	return min(wait, longestPause)
}

// Over reports whether the request has ended or is being deleted.
func Over(request *appsv1beta1.ContainerRecreateRequest) bool {
	return restart.Completed(request) || request.DeletionTimestamp != nil
}

// unanswered reports whether the newest request ended because no daemon on the node answered.
func (h *history) unanswered() bool {
	return h.last != nil && restart.Completed(h.last) && h.last.Status.Message == restart.MessageNoAnswer
}

// covering returns the newest request for the container and its entry in it, or nil.
func (h *history) covering(
	name string,
) (*appsv1beta1.ContainerRecreateRequest, *appsv1beta1.ContainerRecreateRequestContainer) {
	for _, request := range h.ours {
		for i := range request.Spec.Containers {
			if asked := &request.Spec.Containers[i]; asked.Name == name {
				return request, asked
			}
		}
	}
	return nil, nil
}

// cameBack reports whether kubelet restarted the container after the newest request for it.
func (h *history) cameBack(c *container) bool {
	request, asked := h.covering(c.Name)
	return request != nil && restart.Completed(request) && asked.StatusContext != nil &&
		c.status.RestartCount > asked.StatusContext.RestartCount
}

// request returns a request of that number for the containers.
func (s *Snapshot) request(names []string, ignored bool, number int) *appsv1beta1.ContainerRecreateRequest {
	deadline := int64(slack)
	for range names { // they end one after the other
		deadline += int64(s.grace() / time.Second)
	}

	made := &appsv1beta1.ContainerRecreateRequest{
		TypeMeta: metav1.TypeMeta{
			APIVersion: appsv1beta1.GroupVersion.String(),
			Kind:       "ContainerRecreateRequest",
		},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Pod.Namespace,
			Name:      attempt{s.Pod.UID, ignored, number}.name(),
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(s.Pod, corev1.SchemeGroupVersion.WithKind("Pod")),
			},
		},
		Spec: appsv1beta1.ContainerRecreateRequestSpec{
			PodName:                 s.Pod.Name,
			ActiveDeadlineSeconds:   &deadline,
			TTLSecondsAfterFinished: new(int32(keep)),
			Strategy: &appsv1beta1.ContainerRecreateRequestStrategy{
				ForceRecreate: true,
				FailurePolicy: appsv1beta1.ContainerRecreateRequestFailurePolicyIgnore,
			},
		},
	}
	made.OwnerReferences[0].BlockOwnerDeletion = nil // no deletion needs to wait for it

	for _, name := range names {
		made.Spec.Containers = append(made.Spec.Containers,
			appsv1beta1.ContainerRecreateRequestContainer{Name: name})
	}

	return made
}

// grace returns the grace period of the pod's containers, limited to a day.
func (s *Snapshot) grace() time.Duration {
	if s.Pod.Spec.TerminationGracePeriodSeconds == nil {
		return corev1.DefaultTerminationGracePeriodSeconds * time.Second
	}
	return min(max(timing.Seconds(*s.Pod.Spec.TerminationGracePeriodSeconds), 0), 24*time.Hour)
}

// described formats the request for messages.
func described(request *appsv1beta1.ContainerRecreateRequest) string {
	return fmt.Sprintf("ContainerRecreateRequest %s", request.Name)
}
