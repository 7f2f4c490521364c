package inject

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// resources are those of a sidecar by its policy; they replace what it has.
func (in *injection) resources(s *sidecar) (corev1.ResourceRequirements, error) {
	out, policy := corev1.ResourceRequirements{}, s.policy
	targets := in.targets(policy.names)
	if len(targets) == 0 {
		return out, fmt.Errorf("targetContainersNameRegex: no containers match the regex pattern %q",
			policy.names)
	}

	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if e := policy.limits[name]; e != nil {
			limit, limited := policy.aggregate(targets, name,
				func(c *corev1.Container) corev1.ResourceList { return c.Resources.Limits })
			if limited {
				value, err := e.Evaluate(limit)
				if err != nil {
					return out, fmt.Errorf("resourcesExpr.limits.%s: %w", name, err)
				}
				set(&out.Limits, name, value)
			} else if e.Constant() {
				in.warnings = append(in.warnings,
					fmt.Sprintf(
						"container %s gets no limit of %s, although its SidecarSet says %s: a container of the pod has none",
						s.spec.Name, name, text(s.spec.ResourcesPolicy.ResourcesExpr.Limits, name)))
			}
		}
		if e := policy.requests[name]; e != nil {
			request, _ := policy.aggregate(targets, name,
				func(c *corev1.Container) corev1.ResourceList { return c.Resources.Requests })
			value, err := e.Evaluate(request)
			if err != nil {
				return out, fmt.Errorf("resourcesExpr.requests.%s: %w", name, err)
			}
			set(&out.Requests, name, value)
		}
	}

	return out, nil
}

func text(e *appsv1beta1.ResourceExprLimits, name corev1.ResourceName) string {
	if name == corev1.ResourceCPU {
		return e.CPU
	}
	return e.Memory
}

func set(list *corev1.ResourceList, name corev1.ResourceName, value resource.Quantity) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = value
}

// aggregate is the sum or the maximum over the containers; all tells whether every one has a value.
func (p *resourcesPolicy) aggregate(containers []*corev1.Container, name corev1.ResourceName,
	of func(*corev1.Container) corev1.ResourceList) (total resource.Quantity, all bool) {
	all = true
	for _, c := range containers {
		value, ok := of(c)[name]
		all = all && ok
		if p.mode == appsv1beta1.TargetContainersModeMax {
			if total.Cmp(value) < 0 {
				total = value.DeepCopy()
			}
		} else {
			total.Add(value)
		}
	}

	return total, all
}
