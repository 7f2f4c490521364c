package pub

// Lifecycle hooks of a pod.
//
// +spec:IPU-150 ff
// +kubebuilder:object:generate=true
type Lifecycle struct {
	// PreDelete delays the deletion of a pod by its workload.
	PreDelete *LifecycleHook `json:"preDelete,omitempty"`
	// InPlaceUpdate brackets an in-place update.
	InPlaceUpdate *LifecycleHook `json:"inPlaceUpdate,omitempty"`
	// PreNormal holds a new pod unavailable until it is fully hooked.
	PreNormal *LifecycleHook `json:"preNormal,omitempty"`
}

// LifecycleHook names the labels and finalizers by which a pod is hooked.
//
// +spec:IPU-151
// +kubebuilder:object:generate=true
type LifecycleHook struct {
	// LabelsHandler hooks pods that carry any of these labels with exactly these values.
	LabelsHandler map[string]string `json:"labelsHandler,omitempty"`
	// FinalizersHandler hooks pods that carry any of these finalizers.
	FinalizersHandler []string `json:"finalizersHandler,omitempty"`
	// MarkPodNotReady makes the pod NotReady while it waits in PreparingDelete or PreparingUpdate.
	// +spec:IPU-155
	MarkPodNotReady bool `json:"markPodNotReady,omitempty"`
}
