"""Objects and files that nobody should write, from those that somebody has written: what is read of them stops nothing.

    corpus/       objects as an API server and a kubelet deliver them
    mutations     one of them -> the same with a few things wrong; knows nothing of what is read
    watched       whole objects of every watched kind, through the real service, beside a good pod and a good node
    loaders       files and answers: configurations, kubeconfigs, what the device plugin finds on its node
    nightly       100,000 of them: `python -m tests.fuzz.nightly`

Every case has a number; with the seed that is printed, the number makes the same case again.
"""
